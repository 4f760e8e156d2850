"""torchrun --nproc-per-node 2 hf_trainer.py"""

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCABULARY, LENGTH = 128, 16


class Words(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        drawn = torch.Generator().manual_seed(index)
        ids = torch.randint(0, VOCABULARY, (LENGTH,), generator=drawn)
        return {"input_ids": ids, "labels": ids.clone()}


class OwnTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def main():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes, **heads))
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=4, max_steps=10, report_to=[], save_strategy="no"
    )
    OwnTrainer(model=model, args=arguments, train_dataset=Words()).train()


if __name__ == "__main__":
    main()
