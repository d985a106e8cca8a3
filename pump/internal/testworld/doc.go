// Package testworld is simulated accounts with a workload in them, in a bubble of virtual time, for
// the tests of pump. It knows neither half: tests inside of a half use it as well as the worlds.
package testworld
