package queues

// Even shares out a limit among those who would use so much of it, as budgets are shared. Each has
// a small floor. None has more than it would use while others want more. The rest is given out too.
func Even(limit float64, demands []float64) []float64 {
	claims := make([]claim, len(demands))
	for i, d := range demands {
		claims[i] = claim{floor: limit * FloorPart / float64(len(demands)), demand: d, weight: 1}
	}
	return divide(limit, claims)
}
