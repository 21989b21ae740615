"""English words of the frame."""

WORDS = {
    "frame.sections": "Sections",
    "frame.jobs": "Jobs",
    "frame.no_jobs": "No job has been asked yet.",
    "frame.theme": "Colours",
    "frame.auto": "As the system",
    "frame.light": "Light",
    "frame.dark": "Dark",
    "frame.language": "Language",
    "frame.skip": "To the content",
    "frame.cancel": "Cancel",
    "frame.read_only": "this token may read answers, and not ask. Use a token with the role write.",
    "frame.queued": "waits",
    "frame.running": "runs",
    "frame.done": "done",
    "frame.failed": "failed",
    "frame.cancelled": "cancelled",
}
