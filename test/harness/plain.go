package harness

// WithoutRace has the programs built without the race detector also when the
// tests have it: for tests of how much memory and time they take. It is called
// before Main.
func WithoutRace() { racePrograms = false }

// racePrograms says whether the programs are built with the race detector.
var racePrograms = raceEnabled
