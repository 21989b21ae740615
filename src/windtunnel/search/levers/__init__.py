"""Changes of a job, each priced by a prediction: advice, memory fixes, sensitivity to every rate, and the framework's own flags."""
