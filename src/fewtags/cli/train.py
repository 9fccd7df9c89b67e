"""`fewtags train`: its options are those of fewtags.training.options."""

import shlex
from typing import Any

from fewtags.cli.derive import derived
from fewtags.cli.results import outlook, print_estimate, print_result
from fewtags.cli.settings import parse_settings
from fewtags.training.options import option_names


@derived(option_names())
def train(given: dict[str, Any]) -> None:
    """Learn from labelled and unlabelled images; tag the unlabelled."""
    if "settings" in given:
        given["settings"] = parse_settings(given["settings"])
    run_train(**given)


def run_train(data: str, **options: Any) -> None:
    """Train and say what came out; Ctrl-C and SIGTERM stop it between two steps."""
    from fewtags import api
    from fewtags.training.build import processes
    from fewtags.utils.stopping import StopRequest

    with StopRequest().listening() as stop:
        run = api.train(data, stop=stop, **options)
    if processes()[0]:
        return
    result = run.result
    if result.get("map") is not None:
        print_result(result)
        print()
    if "estimate" in result:
        print_estimate(result["estimate"], with_tags=result.get("map") is None)
        for line in outlook(result):
            print(line)
        print()
    folder, unlabelled = run.path, result["images"]["unlabelled"]
    if not result["images"]["labelled"]:
        print("no image is labelled: only the surest get a tag, by its name alone, and none is verified.")
        print("quality is unknown until you label some images; the review asks about the most useful ones first\n")
    elif result.get("unverified"):
        print(f"given by name alone, unverified: {', '.join(result['unverified'])}\n")
    if unlabelled:
        print(f"{unlabelled:,} image{'' if unlabelled == 1 else 's'} tagged: {folder / 'tags.csv'}")
        if (folder / "tags.png").exists():
            print(f"some of them as a picture: {folder / 'tags.png'}")
    name = shlex.quote(str(folder))
    print(f"how good they are, and what to check: fewtags report {name}")
    print(f"correct them, then learn again: fewtags review {name}")
    print(f"tag other images: fewtags tag {name} IMAGES --out more.csv")
