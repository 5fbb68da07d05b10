// Package plant lists defects that can be planted in the engine, to see that the
// tests find them: test/mutants plants each and runs the tests that must fail;
// docs/testing.md is the list in words.
//
// Only a program built with the tag plant has defects, the one that the
// environment variable HOLDFAST_PLANT names. In any other On is constantly
// false, and the compiler leaves nothing of it.
package plant

// A Defect is a mistake that the engine makes on purpose.
type Defect string

// How a commit reaches the disk.
const (
	NoFlushBeforeMeta   Defect = "no-flush-before-meta"
	NoFlushAfterMeta    Defect = "no-flush-after-meta"
	WrongSlot           Defect = "wrong-slot"
	WriteErrorSwallowed Defect = "write-error-swallowed"
	MetaErrorSwallowed  Defect = "meta-error-swallowed"
	SlotNotReadBack     Defect = "slot-not-read-back"
	DirtyOfUnwritten    Defect = "dirty-of-unwritten"
	ShortWriteUnnoticed Defect = "short-write-unnoticed"
	HighWaterStays      Defect = "high-water-stays"
	FlushErrorForgotten Defect = "flush-error-forgotten"
	FlushErrorSwallowed Defect = "flush-error-swallowed"
	NoFlushAfterNoSync  Defect = "no-flush-after-nosync"
	NotGrown            Defect = "not-grown"
	FreelistKept        Defect = "freelist-kept"
)

// Which pages may be used again.
const (
	FreedAtOnce       Defect = "freed-at-once"
	ReadersIgnored    Defect = "readers-ignored"
	PendingForever    Defect = "pending-forever"
	FreedTwice        Defect = "freed-twice"
	DoubleFreeAllowed Defect = "double-free-allowed"
	RollbackLeaks     Defect = "rollback-leaks"
	PreparedNotHeld   Defect = "prepared-not-held"
	VisibleNotHeld    Defect = "visible-not-held"
)

// How a file is closed and opened.
const (
	CloseNoFlush        Defect = "close-no-flush"
	CloseListsAll       Defect = "close-lists-all"
	CloseNoDrop         Defect = "close-no-drop"
	CloseErrorSwallowed Defect = "close-error-swallowed"
	FreelistGivenAway   Defect = "freelist-given-away"
	OtherListGivenAway  Defect = "other-list-given-away"
	OpenNoFlush         Defect = "open-no-flush"
	OpenNoDrop          Defect = "open-no-drop"
	FailedOpenNoDrop    Defect = "failed-open-no-drop"
	CreationNotRedone   Defect = "creation-not-redone"
	LowerLabelWins      Defect = "lower-label-wins"
	MappedEarly         Defect = "mapped-early"
	ReaderUnchecked     Defect = "reader-unchecked"
	ReaderSettles       Defect = "reader-settles"
	IdentityMissing     Defect = "identity-missing"
	CopyBelieved        Defect = "copy-believed"
	LeftInUse           Defect = "left-in-use"
	SumUncompared       Defect = "sum-uncompared"
	FreedStillCounted   Defect = "freed-still-counted"
	LandedStillCounted  Defect = "landed-still-counted"
	FlightStillCounted  Defect = "flight-still-counted"
	EarlyUncounted      Defect = "early-uncounted"
	OtherSumUnused      Defect = "other-sum-unused"
	ReaderNoFlush       Defect = "reader-no-flush"
	LostNotSettled      Defect = "lost-not-settled"
	CopyKeepsMetas      Defect = "copy-keeps-metas"
)

// How free pages are recorded in the extension.
const (
	ChangeLost      Defect = "change-lost"
	InlineLost      Defect = "inline-lost"
	RunGivenAway    Defect = "run-given-away"
	RunUnchecked    Defect = "run-unchecked"
	RunsKeptForever Defect = "runs-kept-forever"
	AnySlotBelieved Defect = "any-slot-believed"
	LogRewritten    Defect = "log-rewritten"
	RecordOfNewest  Defect = "record-of-newest"
	ListsOmitted    Defect = "lists-omitted"
	ListsLate       Defect = "lists-late"
	ListsOfAborted  Defect = "lists-of-aborted"
	EmptyAfterScan  Defect = "empty-after-scan"
	RootUnchecked   Defect = "root-unchecked"
	NumberOfAnother Defect = "number-of-another"
	NumbersRestart  Defect = "numbers-restart"
	MetaNotCovered  Defect = "meta-not-covered"
)

// How a commit of one flush is written and found again.
const (
	TrailUnchecked   Defect = "trail-unchecked"
	OtherUnchecked   Defect = "other-unchecked"
	OpenNoSettle     Defect = "open-no-settle"
	BaseNotHeld      Defect = "base-not-held"
	BaseNotAwaited   Defect = "base-not-awaited"
	BaseNotDurable   Defect = "base-not-durable"
	OnCommitAnyOrder Defect = "on-commit-any-order"
	TieStaysBelieved Defect = "tie-stays-believed"
	SettleLeavesList Defect = "settle-leaves-list"
	RunUnlisted      Defect = "run-unlisted"
	TrailOutOfRange  Defect = "trail-out-of-range"
	NumberUnchecked  Defect = "number-unchecked"
	HashLinear       Defect = "hash-linear"
	SettlesOlder     Defect = "settles-older"
	StrictIgnored    Defect = "strict-ignored"
	SyncStaysBehind  Defect = "sync-stays-behind"
	EvenOutEarly     Defect = "even-out-early"
	LabelParity      Defect = "label-parity"
	NewestNamedTwice Defect = "newest-named-twice"
	BaseUnchecked    Defect = "base-unchecked"
	BaseRecordsCount Defect = "base-records-count"
	EditedRefused    Defect = "edited-refused"
	RootNotLookedAt  Defect = "root-not-looked-at"
	ResealKeepsList  Defect = "reseal-keeps-list"
	ResealSumEarly   Defect = "reseal-sum-early"
)

// How a commit with Periodic is written.
const (
	FreedStillListed  Defect = "freed-still-listed"
	MetaBeforePages   Defect = "meta-before-pages"
	VisibleAlternates Defect = "visible-alternates"
	SlotKept          Defect = "slot-kept"
	PlainUnflushed    Defect = "plain-unflushed"
	StopKeepsVisible  Defect = "stop-keeps-visible"
	AbsorbedForgotten Defect = "absorbed-forgotten"
	GarbledUnnoticed  Defect = "garbled-unnoticed"
)

// How transactions are prepared on top of each other, and aborted.
const (
	WrittenEarly    Defect = "written-early"
	OverlayIgnored  Defect = "overlay-ignored"
	UntilKept       Defect = "until-kept"
	AbortOrder      Defect = "abort-order"
	OrphansLost     Defect = "orphans-lost"
	OrphanTooEarly  Defect = "orphan-too-early"
	OrphanLeaked    Defect = "orphan-leaked"
	RecordKept      Defect = "record-kept"
	UndoEarly       Defect = "undo-early"
	RisesIntoHole   Defect = "rises-into-hole"
	RecordWantsRoom Defect = "record-wants-room"
)

// How what is appended is written before the commit.
const (
	EarlyUnflushed   Defect = "early-unflushed"
	EarlyForgotten   Defect = "early-forgotten"
	EarlyWrittenOver Defect = "early-written-over"
	FlightForgotten  Defect = "flight-forgotten"
	FlightUnread     Defect = "flight-unread"
	FlightReused     Defect = "flight-reused"
	LentGivenAway    Defect = "lent-given-away"
	DoomedCommits    Defect = "doomed-commits"
	EdgeReused       Defect = "edge-reused"
	EdgeNotPruned    Defect = "edge-not-pruned"
	SpillTakesLent   Defect = "spill-takes-lent"
	SpillTakesInline Defect = "spill-takes-inline"
	SpillTakesBranch Defect = "spill-takes-branch"
	SpillTakesNodes  Defect = "spill-takes-nodes"
	SpillForgetsRoot Defect = "spill-forgets-root"
	SpillForgetsPage Defect = "spill-forgets-page"
)

// How the file becomes shorter.
const (
	RunsInLanes   Defect = "runs-in-lanes"
	CutSlots      Defect = "cut-slots"
	CutPrepared   Defect = "cut-prepared"
	CutReaders    Defect = "cut-readers"
	LoweredInLog  Defect = "lowered-in-log"
	WayNotCleared Defect = "way-not-cleared"
	MovedBack     Defect = "moved-back"
	PromisedTwice Defect = "promised-twice"

	CutShort          Defect = "cut-short"
	CutErrorSwallowed Defect = "cut-error-swallowed"
	SlotsStayUneven   Defect = "slots-stay-uneven"
	LoweredForgotten  Defect = "lowered-forgotten"
	PlacedAnywhere    Defect = "placed-anywhere"
	SurveyBlind       Defect = "survey-blind"
)

// How bytes are believed, and what becomes of readers.
const (
	LeafBound       Defect = "leaf-bound"
	CountBound      Defect = "count-bound"
	FreelistBound   Defect = "freelist-bound"
	OverflowBound   Defect = "overflow-bound"
	NoRecheck       Defect = "no-recheck"
	FaultUncaught   Defect = "fault-uncaught"
	DamageUnsaid    Defect = "damage-unsaid"
	DamageHidden    Defect = "damage-hidden"
	LengthUnchecked Defect = "length-unchecked"
	RisenListed     Defect = "risen-listed"
)

// How pages are sealed.
const (
	SealUnchecked   Defect = "seal-unchecked"
	SealWithoutID   Defect = "seal-without-id"
	SealBeforeChild Defect = "seal-before-child"
	SealLaunders    Defect = "seal-launders"
	SealOverContent Defect = "seal-over-content"
	SealNeverLate   Defect = "seal-never-late"
	SealForgotten   Defect = "seal-forgotten"
	ResealFirstPage Defect = "reseal-first-page"
)
