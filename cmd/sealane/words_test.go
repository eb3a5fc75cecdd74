package main

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Every value of the contract that the story can meet has its words, so none is told as a blank.
func TestStoryHasWordsForEverything(t *testing.T) {
	check := func(e protoreflect.EnumDescriptor, has func(protoreflect.EnumNumber) bool) {
		t.Helper()
		for i := range e.Values().Len() {
			if v := e.Values().Get(i); v.Number() != 0 && !has(v.Number()) {
				t.Errorf("%s has no words", v.FullName())
			}
		}
	}
	check(sealanev1.GenerationState_DELIVERED.Descriptor(), func(n protoreflect.EnumNumber) bool { return stateMeans[sealanev1.GenerationState_Value(n)] != "" })
	check(sealanev1.TerminalReason_PUBLISHED.Descriptor(), func(n protoreflect.EnumNumber) bool { return reasonMeans[sealanev1.TerminalReason_Value(n)] != "" })
	check(sealanev1.Disposition_OK.Descriptor(), func(n protoreflect.EnumNumber) bool { return dispositionMeans[sealanev1.Disposition_Value(n)] != "" })
	check(sealanev1.GenerationOrigin_SUBMIT.Descriptor(), func(n protoreflect.EnumNumber) bool { return originMeans[sealanev1.GenerationOrigin_Value(n)] != "" })
	check(sealanev1.Work_INITIAL.Descriptor(), func(n protoreflect.EnumNumber) bool {
		_, ok := workMeans[sealanev1.Work_Value(n)]
		return ok && workNext[sealanev1.Work_Value(n)] != ""
	})
	check(sealanev1.NextAttemptReason_DELIVER_AT.Descriptor(), func(n protoreflect.EnumNumber) bool { return nextMeans[sealanev1.NextAttemptReason_Value(n)] != "" })
	check(sealanev1.DeadlineReason_LIFETIME.Descriptor(), func(n protoreflect.EnumNumber) bool { return deadlineMeans[sealanev1.DeadlineReason_Value(n)] != "" })
	check(sealanev1.ResolveVerdict_RETRY.Descriptor(), func(n protoreflect.EnumNumber) bool {
		return verdictFlag(sealanev1.ResolveVerdict_Value(n)) != sealanev1.ResolveVerdict_Value(n).String()
	})
}
