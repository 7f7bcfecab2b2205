"""An executor whose jobs are models in this process, packed on one device."""
