//go:build planted

package pump

var planted mistake
