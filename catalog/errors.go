package catalog

// Errors lists the verdicts that a command can end with, so that a node can carry one to another by name.
func Errors() []error {
	return []error{
		ErrNotFound, ErrSpreadFixed, ErrFull, ErrForeignState, ErrNotFounded, ErrNodeNotFound, ErrNodeConflict, ErrNodeRemoved, ErrTooManyNodes, ErrLastNode,
		ErrNodeInUse, ErrNoSuchGroup, ErrIllegalStep, ErrLastVoter, ErrInvalid, ErrStale,
		ErrTooManyNamespaces, ErrOperationNotFound, ErrOperationConflict, ErrTooManyOperations, ErrIllegalTransition,
	}
}
