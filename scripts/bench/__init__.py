"""Benchmarks of the engine, of whole jobs and of their parts; see `python -m scripts.bench --help`.

__main__                     choose a command
suite, throughput            `all`: every stage in a process of its own, results in one JSON file and one table
jobs, job_runs, latency, gpus    whole jobs; a document alone; engines on several GPUs
families, reader_checkpoints, chat_server, detector    other families than DeepSeek-OCR, `vllm serve`, the detector
encoder, vision_encoder      the vision encoder alone
starts                       the engine's start, and what is compiled while serving
acceptance                   draft tokens from the page's text, without a model
stages, scans, corpus        parts that need no GPU
predict                      predictions that other benchmarks score
campaign, corpus_server      many documents, and what a job asks of S3
harness, usage, workload, mix, scripted_engine, host_engine, local_s3, s3_server    what they share
"""
