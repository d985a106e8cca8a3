package pump

// ReasonBadLine is the cause of a bad line in quarantine.
const ReasonBadLine = "bad-line"
