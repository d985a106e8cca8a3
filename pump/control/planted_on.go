//go:build planted

package control

var planted mistake
