"""What is read off a forward pass: the autograd graph, where samples stand, whether they see each other."""
