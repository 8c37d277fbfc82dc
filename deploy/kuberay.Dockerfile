# The image of kuberay.yaml: operator and autoscaler ask Ray's dashboard, which only ray[default] has
FROM registry.example.com/twopass:0.2.0
RUN python3 -m pip install --no-cache-dir "ray[default]==2.60.0"
ENV RAY_USAGE_STATS_ENABLED=0
