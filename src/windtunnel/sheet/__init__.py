"""What an answer shows, said once: figures, sentences, tables and charts as data. It knows no domain and no way to draw."""
