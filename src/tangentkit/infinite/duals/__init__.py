"""Duals: Gaussian expectations of products φ(u) φ(v), in closed form, by quadrature and by tables of it."""
