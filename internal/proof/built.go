package proof

// built reports whether the mutants are in this build. Overlay replaces this file.
const built = false
