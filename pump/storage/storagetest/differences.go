package storagetest

// AzuriteDifferences are the cases that Azurite 3.37.0 answers otherwise than Azure.
var AzuriteDifferences = []Difference{}
