"""What a run found, for people: folds over its history, figures, one HTML page, a plain-text summary."""
