"""A validation as documents: the accuracy page, the offline page, and the record that reports quote."""
