"""What a Gram matrix will cost, and how large its tiles are."""
