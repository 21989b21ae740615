"""Chinese words of the section `trust`."""

WORDS = {
    "trust.title": "可信度",
    "trust.about": "预测与实测对照。",
}
