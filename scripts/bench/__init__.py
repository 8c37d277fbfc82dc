"""Benchmarks of the engine, of whole jobs and of their parts; see `python -m scripts.bench --help`.

__main__            choose a command
suite, table        `all`: every stage in a process of its own, results in one JSON file and one table
twopass_stages, baseline_stages, throughput                 the suite's stages, what they share
engine_setup                                                the vLLM engine, opened for a benchmark
jobs, job_runs, scripted_engine, mix_documents, page_drawing   whole jobs
latency, host_engine                                        a document alone, in a fresh worker and in one in use
gpus                                                        engines on one GPU, on two and so on
families, reader_checkpoints, chat_server                   other families than DeepSeek-OCR, and `vllm serve`
detector                                                    the layout detector alone
encoder, vision_encoder                                     the vision encoder alone
starts, start_runs                                          the engine's start, and what is compiled while serving
acceptance, draft_replay, drafted_answers                   draft tokens from the page's text, without a model
stages, corpus                                              parts that need no GPU
campaign, simulated_fleet, corpus_server, s3_calls          many documents, and what a job asks of S3
workload, mix, options, report, usage, machine, fresh_process, local_s3, s3_server, loopback   shared
"""
