"""What the user declares: operators, streams, keys; its validation; regions; rates through selectivities and loops."""
