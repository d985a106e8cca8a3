package pump

// ReasonDropped is the cause that an envelope carries on its way to the owner of its
// segment, to say that somebody gave its quarantined tasks up. No task is quarantined
// for it.
const ReasonDropped = "dropped"
