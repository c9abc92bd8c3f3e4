"""Stream readers: the base class, its options, the gate, offsets, batch sizes and busy time."""
