"""Benchmarks of the engine, of whole jobs and of their parts; see `python -m scripts.bench --help`.

__main__        choose a command
suite           `all`: every stage in a process of its own, results in one JSON file and one table; the encoder alone
jobs, latency   whole jobs, on one GPU and on several, and by stage on a CPU; a document alone
families        other families than DeepSeek-OCR, with random weights, and the layout detector
encoder         what the suite measures of the vision encoder
starts          the engine's start, and what is compiled while serving
acceptance      draft tokens from the page's text, without a model
scans, corpus   readers compared on drawn scans, on drawn pages and on a folder
calibration     confidence by script and height, fitted to drawn scans
predict         predictions that other benchmarks score
campaign        many documents, and what a job asks of S3
harness, mix, s3_server    what they share
"""
