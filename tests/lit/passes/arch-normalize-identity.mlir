// RUN: trc-opt %s -p arch-normalize-identity | filecheck %s
// RUN: trc-opt %s -p arch-normalize-identity,arch-normalize-identity | filecheck %s

// CHECK-LABEL: arch.model @chain
// CHECK-NEXT: %[[R:.*]] = arch.relu %x
// CHECK-NEXT: arch.output %[[R]]
arch.model @chain(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.identity %x
  %1 = arch.identity %0
  %2 = arch.relu %1
  %3 = arch.identity %2
  arch.output %3
}

// Of several identities on an empty shortcut one stays; those of the stem go.
// CHECK-LABEL: arch.model @shortcut
// CHECK-NEXT: %[[I:.*]] = arch.identity %x layer "b"
// CHECK-NEXT: %[[R:.*]] = arch.relu %x
// CHECK-NEXT: arch.add %[[I]], %[[R]]
arch.model @shortcut(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.identity %x layer "a"
  %1 = arch.identity %0 layer "b"
  %2 = arch.identity %x layer "c"
  %3 = arch.relu %2
  %4 = arch.add %1, %3
  arch.output %4
}

// An empty shortcut without identity gets one, with a name that is free.
// CHECK-LABEL: arch.model @bare
// CHECK-NEXT: %[[R:.*]] = arch.relu %x layer "identity1"
// CHECK-NEXT: %[[I:.*]] = arch.identity %x layer "identity2"
// CHECK-NEXT: arch.add %[[I]], %[[R]]
arch.model @bare(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.relu %x layer "identity1"
  %1 = arch.add %x, %0
  arch.output %1
}

// A shortcut with a layer needs none; an empty stem changes places with it.
// CHECK-LABEL: arch.model @full
// CHECK: %[[A:.*]] = arch.add %{{.*}}, %{{.*}} layer "add1"
// CHECK-NEXT: %[[T:.*]] = arch.tanh %[[A]]
// CHECK-NEXT: %[[I:.*]] = arch.identity %[[A]] layer "i"
// CHECK-NEXT: arch.add %[[I]], %[[T]] layer "add2"
// CHECK-NEXT: arch.output
arch.model @full(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.relu %x
  %1 = arch.identity %0
  %2 = arch.tanh %x
  %3 = arch.add %1, %2 layer "add1"
  %4 = arch.tanh %3
  %5 = arch.identity %3 layer "i"
  %6 = arch.add %4, %5 layer "add2"
  arch.output %6
}

// An identity before a fork is not on the shortcut.
// CHECK-LABEL: arch.model @before
// CHECK-NEXT: arch.relu %x
// CHECK-NEXT: %[[I:.*]] = arch.identity %x layer "identity1"
// CHECK-NEXT: arch.add %[[I]],
arch.model @before(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.identity %x layer "i"
  %1 = arch.relu %0
  %2 = arch.add %0, %1
  arch.output %2
}
