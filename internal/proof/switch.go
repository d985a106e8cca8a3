package proof

import "os"

// environment names the mutant that is at work from the start of a test binary.
const environment = "QUEUEPUMP_MUTANT"

var atWork = os.Getenv(environment)

// On reports whether a mutant is at work. Mutated functions ask it.
func On(name string) bool { return atWork == name }

// plant sets which mutant is at work; "" means none. No code that asks On may run meanwhile.
func plant(name string) { atWork = name }
