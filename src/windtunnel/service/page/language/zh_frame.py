"""Chinese words of the frame."""

WORDS = {
    "frame.sections": "栏目",
    "frame.jobs": "任务",
    "frame.no_jobs": "还没有提交过任务。",
    "frame.theme": "颜色",
    "frame.auto": "跟随系统",
    "frame.light": "浅色",
    "frame.dark": "深色",
    "frame.language": "语言",
    "frame.skip": "跳到正文",
    "frame.cancel": "取消",
    "frame.read_only": "此令牌只能读取答案，不能提问。请使用 write 角色的令牌。",
    "frame.queued": "等待中",
    "frame.running": "运行中",
    "frame.done": "完成",
    "frame.failed": "失败",
    "frame.cancelled": "已取消",
}
