accelerate launch --config_file configs/zero3.yaml scripts/dpo.py --config configs/dpo.yaml
