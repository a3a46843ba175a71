"""What a study is made of: trials that run alone, the records they leave, and the result that is read off them.

    study      Study (its card), Result (what it says)      trial     Trial, sweep, perform
    records    the finished trials, to be asked             store     where they are kept
    plain      plain values and arrays as JSON values       data      the data of a trial and their cards
    pairs      a network and its linearization, trained alike
    kept_folder  a folder of a trial that outlives a kill

Nothing is imported here: cards must be listed without torch.
"""
