"""Models in hand: `fuse` distils several trained models into one, without a federation."""
