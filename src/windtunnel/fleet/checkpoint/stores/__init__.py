"""Where steps are kept: a local folder, or an object store that fsspec opens (`s3://`, `gs://`, `file://`, …)."""
