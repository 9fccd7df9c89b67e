"""What an image becomes before anything is learned: views, features of frozen backbones, and where they are kept."""
