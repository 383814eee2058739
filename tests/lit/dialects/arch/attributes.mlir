// Words are bare inside layers and attributes of the dialect elsewhere; generic text needs nothing that MLIR lacks.
// RUN: trc-opt %s --print-op-generic | filecheck %s
// RUN: trc-opt %s --print-op-generic | trc-opt --print-op-generic | filecheck %s

arch.model @words(%x: tensor<?x32x32x8xf32>) {
  // CHECK: act = #arch<act relu6>
  %0 = arch.cbr %x {out_channels = 8, kernel = 1, act = relu6}
  // CHECK: shortcut = #arch<shortcut projection>
  %1 = arch.basic_block %0 {out_channels = 8, shortcut = projection}
  // CHECK: style = #arch<style RESNET_3_3>
  %2 = arch.block %1 {style = RESNET_3_3, out = 8}
  // CHECK-NOT: builtin.int
  arch.output %2
}
