// The structure of a network: own and generic text read back.
// RUN: trc-opt %s | trc-opt | filecheck %s
// RUN: trc-opt %s --print-op-generic | trc-opt | filecheck %s

// CHECK: arch.model @tree(%x: tensor<?x?x?x?xf32>)
arch.model @tree(%x: tensor<?x?x?x?xf32>) {
  // CHECK-NEXT: %[[S:.*]] = arch.seq %x layer "stem" (%[[A:.*]]) {
  %0 = arch.seq %x layer "stem" (%a) {
    // CHECK-NEXT: arch.repeat %[[A]] {times = 3} (%{{.*}}) {
    %1 = arch.repeat %a {times = 3} (%b) {
      %2 = arch.tanh %b
      // CHECK: arch.yield
      arch.yield %2
    }
    arch.yield %1
  }
  // CHECK: arch.add2 %[[S]] layer "sum" shortcut (%[[B:.*]]) {
  // CHECK-NEXT: arch.yield %[[B]]
  // CHECK-NEXT: } stem (%{{.*}}) {
  %3 = arch.add2 %0 layer "sum" shortcut (%a) {
    arch.yield %a
  } stem (%a) {
    %4 = arch.relu %a
    arch.yield %4
  }
  // CHECK: arch.block %{{.*}} {style = RESNET_1_3_1, mid = 64, out = 256} layer "b1"
  %5 = arch.block %3 {style = RESNET_1_3_1, mid = 64, out = 256} layer "b1"
  // CHECK-NEXT: arch.block %{{.*}} {style = MB_E6_K3_DS, out = 24}
  %6 = arch.block %5 {style = MB_E6_K3_DS, out = 24}
  // CHECK-NEXT: arch.output
  arch.output %6
}
