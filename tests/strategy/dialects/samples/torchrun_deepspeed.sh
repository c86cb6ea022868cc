deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed deepspeed_auto.json \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16
