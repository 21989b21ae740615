"""The inverse question: from money, days or a loss to models, tokens and machines."""
