// All problems of a file come at once, each with its line shown.

// RUN: not trc-opt %s 2>&1 | filecheck %s

// CHECK:      trc-opt-all-problems.mlir:12:1: error: layer 'fc1': memplan.tensor: tensor @fc1.weight: has an offset (256) but no slot
// CHECK-NEXT:   memplan.tensor @fc1.weight
// CHECK-NEXT:   ^
// CHECK-NEXT: trc-opt-all-problems.mlir:13:1: error: {{.*}}the offset 3 is no multiple
// CHECK-NEXT:   memplan.region POOL
// CHECK-NEXT:   ^
// CHECK-NEXT: trc-opt-all-problems.mlir:13:1: error: {{.*}}the length 7 is no multiple
memplan.tensor @fc1.weight W_FC_WEIGHT f32 [1, 1, 1, 1] layer "fc1" at 256
memplan.region POOL at 3 bytes 7
