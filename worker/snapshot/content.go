package snapshot

// LabelContent is the label of a committed snapshot that says what it is with its parents by content, such as the digests of the
// layers that it was made from: two snapshots with the same value have the same content, also in different stores. It is given by
// those who make a snapshot from something that they have verified.
const LabelContent = "holdfast.content"
