package queues

// Used is the part of the limit that this process would spend as of its last beat, at most 1.
func (b *Budget) Used() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.use.demand() / b.Limit
}
