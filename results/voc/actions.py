"""VOC 2012's ten actions as a folder with labels.csv: a second set of tags, most of which are not things.

python results/voc/actions.py VOCdevkit/VOC2012 FOLDER

An image shows an action if one of its people is marked with it; train is for training, val for testing.
"""

import csv
import os
import sys
from pathlib import Path


def main() -> None:
    """Link the images and write labels.csv with a column `split`."""
    voc, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    sets = voc / "ImageSets" / "Action"
    actions = sorted(one.stem.removesuffix("_train") for one in sets.glob("*_train.txt"))
    folder.mkdir(parents=True)
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "split", *actions])
        for part, split in (("train", "train"), ("val", "test")):
            shown = {}
            for action in actions:
                rows = [line.split() for line in (sets / f"{action}_{part}.txt").read_text().splitlines()]
                shown[action] = {row[0] for row in rows if row[2] == "1"}
            names = sorted({line.split()[0] for line in (sets / f"{part}.txt").read_text().splitlines()})
            for name in names:
                os.link(voc / "JPEGImages" / f"{name}.jpg", folder / f"{name}.jpg")
                writer.writerow([f"{name}.jpg", split, *(int(name in shown[action]) for action in actions)])
    print(f"{folder}: {', '.join(actions)}")


if __name__ == "__main__":
    main()
