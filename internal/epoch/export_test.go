package epoch

// Held is how many guards Counts tells of.
func (e *Epoch[T]) Held() int64 { now, _ := e.Counts(); return now }

// Acquired is how many guards Counts says that there have ever been.
func (e *Epoch[T]) Acquired() uint64 { _, ever := e.Counts(); return ever }
