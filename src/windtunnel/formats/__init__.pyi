from .jobs.deepspeed import from_deepspeed as from_deepspeed
from .jobs.huggingface.config import from_config as from_config
from .jobs.import_job import format_of_table as format_of_table
from .jobs.import_job import import_job as import_job
from .jobs.imported import Imported as Imported
from .jobs.megatron.importer import from_arguments as from_arguments
from .jobs.torchtitan import from_torchtitan as from_torchtitan
