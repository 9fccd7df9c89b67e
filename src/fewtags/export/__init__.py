"""A model leaves the house: one ONNX file from pixels to scores, or a folder with a model card."""
