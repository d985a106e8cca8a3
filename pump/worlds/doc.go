// Package worlds holds the tests of the pump as a whole, on simulated accounts in virtual time: its
// parts together, the windows of vulnerability, the limits, and simulated worlds of one seed each.
// They use exported names only, and what package sim brings into the engine.
package worlds
