"""A trained model: encoder, network and thresholds; saved, loaded, used to tag, exported."""
