"""Communication groups: which ranks form them, where they sit, and the links that they share."""
