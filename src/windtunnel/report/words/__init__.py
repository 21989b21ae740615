"""What terminal and page share: numbers as text, parts of a breakdown with their colours, reasons, bills."""
